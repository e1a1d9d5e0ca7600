"""The main job, acted out: from contract files and a pod list on disk to a running, explained fleet."""

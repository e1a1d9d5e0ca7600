"""The promises: what is waited for, retried and told to a person."""

"""What is said over gRPC: `sco/compute/v1/control.proto`, and the stubs that `make proto` makes of it."""

"""What an API server and its controllers do by themselves, each driven by the changes it needs."""

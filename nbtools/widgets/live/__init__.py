"""What every widget stands on: requests and replies, texts that grow, threads that answer, scripts and styles."""

"""The Mooncake traces."""

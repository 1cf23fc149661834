"""`bodyFormat`: bodies of messages and events as columns, in both formats."""

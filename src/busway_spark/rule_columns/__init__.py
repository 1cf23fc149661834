"""The rules of subscriptions as columns of Spark: a second back end of the tree in `busway.rules.expression`."""

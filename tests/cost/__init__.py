"""What one request may cost: the worst that each right allows, by every way, against bounds.

world          a whole server on a loop of its own in a thread, whose turns, memory and steps can be measured
machine        how fast the machine is at this moment
instruments    how a request is judged: the longest turn, bytes held, steps counted
scene          what a row is given: entities, clients and requests, and the moment in which it is measured
amqp_client    a client that writes any bytes over AMQP, straight or in a WebSocket, and reads no more than it must
http_client    the same for HTTP
row            one line of the table: right, way, verb, what is asked for, how much of it
rows_…         the table, by subject
test_bounds    no row holds the loop or memory
test_growth    steps follow what is asked for, not what else is there
test_every_verb   every performative, operation and route has a row
test_config_import   applying a configuration file to a running loop
"""

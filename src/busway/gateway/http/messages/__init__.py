"""Messages over HTTP. Follow one:

messages            send, receive, settle, renew; the entities, by address, and the receiver for one message
browsing            messages by number without taking them; one that was chosen is deleted, deferred, dead-lettered
http_message        a request as a payload, a delivery as an answer
message_properties  system properties in JSON, application properties as headers, and which headers are none

Others know `browsing`, `http_message` and `messages`.
"""

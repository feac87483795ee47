"""What clients are told they may do: everything, as on a Kafka without access control lists.

The numbers are bit fields over Kafka's AclOperation codes.
"""

CLUSTER_OPERATIONS = 8096
TOPIC_OPERATIONS = 3576
GROUP_OPERATIONS = 3400
NOT_ASKED = -(2**31)

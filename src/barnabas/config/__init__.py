"""Every setting, declared once: Kafka's name, type, default, doc and bounds.

From the declarations come parsing, flags, the answers of DescribeConfigs and the table in the docs. One file for each
reader: topics, network, storage, replication, groups; `broker` puts those of a broker together.
Used by every layer; knows none.
"""

from barnabas.config.broker import KAFKAS_OWN as KAFKAS_OWN
from barnabas.config.broker import BrokerConfig as BrokerConfig
from barnabas.config.broker import broker_config as broker_config
from barnabas.config.broker import broker_settings as broker_settings
from barnabas.config.broker import handed_down as handed_down
from barnabas.config.cluster import ClusterConfig as ClusterConfig
from barnabas.config.declaring import DAY_MS as DAY_MS
from barnabas.config.groups import GroupConfig as GroupConfig
from barnabas.config.network import NetworkConfig as NetworkConfig
from barnabas.config.replication import ReplicationConfig as ReplicationConfig
from barnabas.config.storage import StorageConfig as StorageConfig
from barnabas.config.topic import TopicConfig as TopicConfig
from barnabas.config.topic import topic_config as topic_config
from barnabas.config.topic import topic_settings as topic_settings

# Orders are mirrored, with a node of a dedicated MirrorMaker 2 cluster: sh mirror.sh JAVA...
# One Kafka is both clusters. Their aliases are in the names of topics and groups.
source="$ONCELOG_GROUP"
target="$ONCELOG_GROUP-target"
file="$STATE/mm2-$ONCELOG_INSTANCE.properties"
cat > "$file" <<PROPERTIES
clusters = $source, $target
$source.bootstrap.servers = $KAFKA_BOOTSTRAP_SERVERS
$target.bootstrap.servers = $KAFKA_BOOTSTRAP_SERVERS
$source->$target.enabled = true
$source->$target.topics = $ONCELOG_IN
$target->$source.enabled = false
emit.heartbeats.enabled = false
emit.checkpoints.enabled = false
tasks.max = 4

dedicated.mode.enable.internal.rest = true
listeners = http://127.0.0.1:0
PROPERTIES
exec "$@" org.apache.kafka.connect.mirror.MirrorMaker "$file"

// Compiles once what the field descriptors of this folder say; see `Codec`.
#include "instance/group.h"
#include "instance/ingress/policies.h"
#include "instance/latency/policies.h"
#include "instance/plant/policies.h"
#include "instance/scheduler/policies.h"

namespace spillway::sim {

template struct Codec<instance::Ingress>;
template struct Codec<instance::Latency>;
template struct Codec<instance::Plant>;
template struct Codec<instance::Scheduler>;
template struct Codec<instance::InstanceGroup>;

}  // namespace spillway::sim

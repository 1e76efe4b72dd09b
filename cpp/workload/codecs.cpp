// Compiles once what the field descriptors of this folder say; see `Codec`.
#include "workload/arrivals/policies.h"
#include "workload/lengths/policies.h"
#include "workload/policies.h"

namespace spillway::sim {

template struct Codec<workload::Arrivals>;
template struct Codec<workload::Lengths>;
template struct Codec<workload::Workload>;

}  // namespace spillway::sim

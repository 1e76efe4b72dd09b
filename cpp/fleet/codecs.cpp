// Compiles once what the field descriptors of this folder say; see `Codec`.
#include "fleet/autoscaler.h"
#include "fleet/fleet.h"

namespace spillway::sim {

template struct Codec<fleet::Autoscaler>;
template struct Codec<fleet::Fleet>;

}  // namespace spillway::sim

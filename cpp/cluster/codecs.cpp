// Compiles once what the field descriptors of this folder say; see `Codec`.
#include "cluster/config.h"

namespace spillway::sim {

template struct Codec<cluster::Simulation>;

}  // namespace spillway::sim

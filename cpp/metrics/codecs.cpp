// Compiles once what the field descriptors of this folder say; see `Codec`.
#include "metrics/config.h"

namespace spillway::sim {

template struct Codec<metrics::Metrics>;

}  // namespace spillway::sim

// Compiles once what the field descriptors of this folder say; see `Codec`.
#include "signals/transports.h"

namespace spillway::sim {

template struct Codec<signals::Signals>;

}  // namespace spillway::sim

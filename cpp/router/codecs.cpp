// Compiles once what the field descriptors of this folder say; see `Codec`.
#include "router/filters/policies.h"
#include "router/pickers/policies.h"
#include "router/policies.h"
#include "router/scorers/policies.h"

namespace spillway::sim {

template struct Codec<router::AnyFilter>;
template struct Codec<router::AnyScorer>;
template struct Codec<router::AnyPicker>;
template struct Codec<router::Router>;

}  // namespace spillway::sim

// Compiles once what the field descriptors of this folder say; see `Codec`.
#include "gateway/admission/policies.h"
#include "gateway/controller/policies.h"
#include "gateway/fairness/policies.h"
#include "gateway/gateway.h"
#include "gateway/limit/policies.h"
#include "gateway/usage_limit/policies.h"

namespace spillway::sim {

template struct Codec<gateway::Admission>;
template struct Codec<gateway::Fairness>;
template struct Codec<gateway::Limit>;
template struct Codec<gateway::UsageLimit>;
template struct Codec<gateway::Controller>;
template struct Codec<gateway::Gateway>;

}  // namespace spillway::sim

#pragma once

#include <variant>

#include "gateway/admission/always_admit.h"
#include "gateway/admission/busy_threshold.h"
#include "gateway/admission/predictive_ttft.h"
#include "gateway/admission/reject_all.h"
#include "gateway/admission/token_bucket.h"
#include "sim/field.h"

namespace spillway::gateway {

/// Every admission policy. This list is the only place that names them all.
using Admission = std::variant<AlwaysAdmit, RejectAll, TokenBucket, BusyThreshold, PredictiveTtft>;

}  // namespace spillway::gateway

extern template struct spillway::sim::Codec<spillway::gateway::Admission>;

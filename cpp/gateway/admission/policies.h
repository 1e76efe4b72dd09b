#pragma once

#include <variant>

#include "gateway/admission/always_admit.h"
#include "gateway/admission/bouncer.h"
#include "gateway/admission/busy_threshold.h"
#include "gateway/admission/compiled_admission.h"
#include "gateway/admission/dagor.h"
#include "gateway/admission/early_rejection.h"
#include "gateway/admission/envoy_admission.h"
#include "gateway/admission/gaie_legacy.h"
#include "gateway/admission/latency_slo.h"
#include "gateway/admission/predictive_ttft.h"
#include "gateway/admission/probabilistic.h"
#include "gateway/admission/rate_limit.h"
#include "gateway/admission/reject_all.h"
#include "gateway/admission/slo_gated.h"
#include "gateway/admission/tenant_budget.h"
#include "gateway/admission/tenant_token_bucket.h"
#include "gateway/admission/tier_shed.h"
#include "gateway/admission/token_bucket.h"
#include "gateway/python_policies.h"

namespace spillway::gateway {

/// Every admission policy. This list is the only place that names them all.
using Admission = std::variant<AlwaysAdmit, RejectAll, TokenBucket, TenantTokenBucket, TenantBudget,
                               SloGated, TierShed, GaieLegacy, Probabilistic, LatencySlo,
                               EarlyRejection, EnvoyAdmission, Dagor, Bouncer, BusyThreshold,
                               PredictiveTtft, RateLimit, PythonAdmission, CompiledAdmission>;

}  // namespace spillway::gateway

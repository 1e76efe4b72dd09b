#include "gateway/usage_limit/python_usage_limit.h"

#include "gateway/usage_limit/usage_limit.h"

namespace spillway::gateway {

std::unique_ptr<UsageLimitPolicy> make(const PythonUsageLimit& config,
                                       std::span<const std::int64_t> priorities) {
  return config.make_policy("gateway.usage_limit", priorities);
}

}  // namespace spillway::gateway

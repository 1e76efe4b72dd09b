#pragma once

#include <variant>

#include "router/deciders/compiled_decider.h"
#include "router/deciders/conditional.h"
#include "router/deciders/fixed.h"
#include "router/deciders/uncached_tokens.h"
#include "router/python_policies.h"

namespace spillway::router {

/// Every decider. This list is the only place that names them all.
using AnyDecider = std::variant<AlwaysRemote, NeverRemote, UncachedTokens, Conditional,
                                PythonDecider, CompiledDecider>;

/// Whether it reads what both routers would choose, and the loads there.
inline bool reads_loads(const AnyDecider& decider) {
  return std::visit([]<class Config>(const Config&) { return requires { Config::reads_loads; }; },
                    decider);
}

/// Whether it also reads which tokens of a prompt the prefill instance has got before.
inline bool reads_prefill_cache(const AnyDecider& decider) {
  return std::visit(
      []<class Config>(const Config&) { return requires { Config::reads_prefill_cache; }; },
      decider);
}

}  // namespace spillway::router

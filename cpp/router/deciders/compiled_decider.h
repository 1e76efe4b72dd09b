#pragma once

#include <memory>
#include <string_view>

#include "signals/compiled_policy.h"
#include "signals/needs.h"

namespace spillway::router {

class Decider;

struct DeciderFunctions : sim::Attachment {
  signals::IsLocalFunction* is_local = nullptr;
  std::shared_ptr<void> owner;  ///< keeps the code in memory
};

/// A decider in a C function.
struct CompiledDecider : signals::CompiledPolicy<DeciderFunctions> {
  static constexpr std::string_view type_name = "CompiledDecider";
  static constexpr std::string_view doc =
      "A decider in a C function, made by spillway.policies.compiled_decider.";
  static void fields(auto field) { CompiledPolicy::fields<CompiledDecider>(field); }
  static constexpr signals::Needs needs{.prefix_index = true, .output_lengths = true};
  static constexpr bool reads_loads = true, reads_prefill_cache = true;
};

std::unique_ptr<Decider> make(const CompiledDecider& config);

}  // namespace spillway::router

#pragma once

#include <memory>
#include <string_view>

#include "router/scorers/weight.h"
#include "signals/needs.h"

namespace spillway::router {

class Scorer;

/// The share of the prompt that was sent there before.
struct PrefixAffinity {
  double weight = 1;

  static constexpr std::string_view kind = "prefix_affinity", type_name = "PrefixAffinity";
  static constexpr std::string_view doc =
      "The share of the prompt's leading full blocks that were sent to the instance before, by the "
      "gateway's own record (prefix_index).";
  static void fields(auto field) { add_weight<PrefixAffinity>(field); }
  static constexpr signals::Needs needs{.prefix_index = true};
};

std::unique_ptr<Scorer> make(const PrefixAffinity& config);

}  // namespace spillway::router

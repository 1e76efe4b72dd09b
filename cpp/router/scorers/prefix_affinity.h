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
  double match_length_weight = 0;
  double match_length_scale_tokens = 8192;

  static constexpr std::string_view kind = "prefix_affinity", type_name = "PrefixAffinity";
  static constexpr std::string_view doc =
      "The share of the prompt's leading full blocks that were sent to the instance before, by the "
      "gateway's own record (prefix_index).";
  static void fields(auto field) {
    add_weight<PrefixAffinity>(field);
    field("match_length_weight", &PrefixAffinity::match_length_weight,
          "Weight of the length of the match, (match ÷ match_length_scale_tokens)² up to 1, beside "
          "1 − this weight for its share of the prompt.")
        .dimensionless()
        .range(sim::between(0, 1));
    field("match_length_scale_tokens", &PrefixAffinity::match_length_scale_tokens,
          "Length of a match that counts fully.")
        .unit("tokens")
        .range(sim::positive_up_to(1e9))
        .log_search(512, 65536);
  }
  static constexpr signals::Needs needs{.prefix_index = true};
};

std::unique_ptr<Scorer> make(const PrefixAffinity& config);

}  // namespace spillway::router

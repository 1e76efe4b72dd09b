#pragma once

#include <memory>
#include <string_view>

#include "router/scorers/weight.h"

namespace spillway::router {

class Scorer;

/// An instance that has the adapter of the request.
struct LoraAffinity {
  double weight = 1;

  static constexpr std::string_view kind = "lora_affinity", type_name = "LoraAffinity";
  static constexpr std::string_view doc =
      "1 for an instance on which the adapter of the request is active, 0.8 for one with room for "
      "an adapter, 0.6 for one on which it waits, otherwise 0 (llm-d's lora-affinity-scorer). "
      "Simulated instances have no adapters, so that all get 0; tests script them.";
  static void fields(auto field) { add_weight<LoraAffinity>(field); }
};

std::unique_ptr<Scorer> make(const LoraAffinity& config);

}  // namespace spillway::router

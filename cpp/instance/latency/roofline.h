#pragma once

#include <memory>
#include <optional>
#include <string_view>

#include "sim/ids.h"
#include "sim/schema/range.h"

namespace spillway::instance {

class LatencyModel;

/// Step time of a roofline: reading the weights and computing the tokens overlap; attention and
/// overheads come on top.
struct Roofline {
  double alpha0_us = 6890;
  double alpha_input_us = 0;
  double alpha_output_us = 0;
  double constant_us = 2081.4;
  double weights_us = 4667.076139303483;
  double expert_weights_us = 0;
  double expert_share = 1;
  double token_us = 21.907128154713252;
  std::optional<double> norm = 4;
  double decode_us = 37.1489590152511;
  double decode_context_us = 0.034933901918976544;
  double prefill_context_us = 0.00082283383994566;
  double chunk_us = 0;

  static constexpr std::string_view kind = "roofline", type_name = "Roofline";
  static constexpr std::string_view doc =
      "Step time of a roofline: constant + (w^p + (token·n)^p)^(1/p) + decode·D + "
      "decode_context·C + prefill_context·A + chunk·K, with p = norm, n tokens, D decoding "
      "requests with a context of C tokens, K requests that prefill, and A = Σ n·(context + n/2) "
      "over these. The weights that a step reads take w = weights + expert_weights·(1 − (1 − "
      "expert_share)^n): of a mixture of experts, those that at least one token uses. "
      "The defaults are those of Llama 3.1 8B on an H100 in the catalog of servers.";
  static void fields(auto field) {
    const auto nonnegative = sim::between(0, 1e12);
    field("alpha0_us", &Roofline::alpha0_us,
          "Delay of every request between routing and the engine's queue.")
        .unit("us")
        .range(nonnegative);
    field("alpha_input_us", &Roofline::alpha_input_us, "Part of that delay per input token.")
        .unit("us/token")
        .range(nonnegative);
    field("alpha_output_us", &Roofline::alpha_output_us,
          "Cost of delivering tokens: lengthens every step that emits one (see output_overhead).")
        .unit("us")
        .range(sim::between(0, 6e7));
    field("constant_us", &Roofline::constant_us,
          "Duration of every step apart from its work: the engine's overhead.")
        .unit("us")
        .range(nonnegative);
    field("weights_us", &Roofline::weights_us,
          "Time to read the weights once. Measurements of whole steps identify its sum with "
          "constant_us better than each of the two.")
        .unit("us")
        .range(nonnegative);
    field("expert_weights_us", &Roofline::expert_weights_us,
          "Time to read the weights of all routed experts once; 0: the model has none.")
        .unit("us")
        .range(nonnegative);
    field("expert_share", &Roofline::expert_share,
          "Share of the routed experts that one token uses: experts per token / experts. Tokens "
          "choose independently of each other.")
        .dimensionless()
        .range(sim::between(0, 1));
    field("token_us", &Roofline::token_us,
          "Time to compute a token in matrix products, of a prompt or of a decoding request.")
        .unit("us/token")
        .range(nonnegative);
    field("norm", &Roofline::norm,
          "Exponent p by which the times for weights and tokens combine: 1 adds them, which makes "
          "the step time linear; null takes the longer one. Measured GPUs are between 1.5 and 4.")
        .dimensionless()
        .range(sim::between(1, 64));
    field("decode_us", &Roofline::decode_us, "Time per request that decodes in the step.")
        .unit("us/request")
        .range(nonnegative);
    field("decode_context_us", &Roofline::decode_context_us,
          "Time per token of context of a request that decodes: reading its KV.")
        .unit("us/token")
        .range(nonnegative);
    field("prefill_context_us", &Roofline::prefill_context_us,
          "Time per pair of a prompt token that is computed and a token before it: attention.")
        .unit("us")
        .range(nonnegative);
    field("chunk_us", &Roofline::chunk_us, "Time per request that prefills in the step.")
        .unit("us/request")
        .range(nonnegative);
  }
};

std::unique_ptr<LatencyModel> make(const Roofline& config, std::uint64_t seed, sim::InstanceId id);

}  // namespace spillway::instance

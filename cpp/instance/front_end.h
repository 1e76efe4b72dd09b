#pragma once

#include <cstdint>
#include <string_view>

#include "sim/schema/range.h"

namespace spillway::instance {

/// What a server does with a request before its engine sees it.
struct FrontEnd {
  std::int64_t workers = 1;
  double us_per_request = 0;
  double us_per_token = 0;
  bool counts_on_arrival = false;

  static constexpr std::string_view type_name = "FrontEnd";
  static constexpr std::string_view doc =
      "What a server does with a request before its engine sees it: HTTP, templates, tokenization, "
      "images. Workers take requests first come, first served; a withdrawn request is finished "
      "all the same. Without times there is no front end.";
  static void fields(auto field) {
    using F = FrontEnd;
    field("workers", &F::workers,
          "Requests that are worked on at the same time: processes or threads (vLLM "
          "--api-server-count).")
        .unit("workers")
        .range(sim::between(1, 10000))
        .search(1, 16);
    field("us_per_request", &F::us_per_request, "Time of a worker for each request.")
        .unit("us")
        .range(sim::between(0, 1e9));
    field("us_per_token", &F::us_per_token, "Time of a worker for each token of the prompt.")
        .unit("us")
        .range(sim::between(0, 1e6));
    field("counts_on_arrival", &F::counts_on_arrival,
          "Whether the limits of vllm_queue_limits also count the requests in the front end. They "
          "are applied on arrival and again at the engine, as in vLLM, where requests that are not "
          "counted yet let a burst pass on arrival that is refused at the engine (vllm#58192).");
  }
  bool is_on() const { return us_per_request > 0 || us_per_token > 0; }
};

}  // namespace spillway::instance

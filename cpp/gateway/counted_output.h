#pragma once

#include <cstdint>

#include "gateway/output_length.h"
#include "signals/view.h"

namespace spillway::gateway {

/// The output tokens that are counted for a request; `fixed`: for those that have no other number.
inline std::int64_t counted_output(const signals::RequestView& request, OutputLength which,
                                   std::int64_t fixed) {
  switch (which) {
    case OutputLength::predicted:
      return request.predicted_output_tokens();
    case OutputLength::max_tokens:
      return request.max_tokens() > 0 ? request.max_tokens() : fixed;
    case OutputLength::fixed:
      break;
  }
  return fixed;
}

}  // namespace spillway::gateway

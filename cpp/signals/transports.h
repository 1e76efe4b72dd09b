#pragma once

#include <string_view>
#include <tuple>
#include <variant>

#include "sim/field.h"
#include "sim/time.h"

namespace spillway::signals {

/// Every decision sees the present.
struct Live {
  static constexpr std::string_view kind = "live", type_name = "Live";
  static constexpr std::string_view doc = "Every decision sees the instances as they are.";
  static constexpr auto fields() { return std::tuple(); }
};

/// Values are read again when a decision is due and the last reading is at least one period old.
/// Until the first period has passed, all values are zero (BLIS's snapshot refresh).
struct OnRead {
  double period_s = 0.05;

  static constexpr std::string_view kind = "on_read", type_name = "OnRead";
  static constexpr std::string_view doc =
      "Values are read again when a decision (admission or routing) is due and the last reading is "
      "at least period_s "
      "old; zeros are seen until the first period has passed.";
  static constexpr auto fields() {
    return std::tuple(
        sim::field("period_s", &OnRead::period_s, "Age at which a reading is renewed.")
            .unit("s")
            .range(sim::positive_up_to(sim::kLongestSpan_s))
            .log_search(0.001, 10));
  }
};

using Signals = std::variant<Live, OnRead>;

}  // namespace spillway::signals

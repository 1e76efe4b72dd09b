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

/// Every instance is scraped periodically; decisions see the last scrape that has arrived.
struct Scraped {
  double period_s = 0.05;
  double phase_s = 0;
  double delay_s = 0;

  static constexpr std::string_view kind = "scraped", type_name = "Scraped";
  static constexpr std::string_view doc =
      "Every instance is scraped at phase_s, phase_s + period_s, …; a decision sees the last "
      "scrape "
      "that is at least delay_s old, and zeros before the first one.";
  static constexpr auto fields() {
    using sim::field;
    return std::tuple(
        field("period_s", &Scraped::period_s, "Time between two scrapes.")
            .unit("s")
            .range(sim::between(1e-4, sim::kLongestSpan_s))
            .log_search(0.001, 10),
        field("phase_s", &Scraped::phase_s, "Instant of the first scrape.")
            .unit("s")
            .range(sim::between(0, sim::kLongestSpan_s)),
        field("delay_s", &Scraped::delay_s, "Time from a scrape until decisions know of it.")
            .unit("s")
            .range(sim::between(0, 10)));
  }
};

using Signals = std::variant<Live, OnRead, Scraped>;

}  // namespace spillway::signals

#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string_view>
#include <variant>

#include "sim/schema/enum.h"
#include "sim/schema/range.h"
#include "sim/time.h"

namespace spillway::signals {

/// Every decision sees the current state.
struct Live {
  static constexpr std::string_view kind = "live", type_name = "Live";
  static constexpr std::string_view doc = "Every decision sees the current state of the instances.";
  static void fields(auto /*field*/) {}
};

/// Values are read again at a decision if the last reading is at least one period old. Until the
/// first period has passed, all values are zero (BLIS's snapshot refresh).
struct OnRead {
  double period_s = 0.05;

  static constexpr std::string_view kind = "on_read", type_name = "OnRead";
  static constexpr std::string_view doc =
      "Values are read again at a decision (admission or routing) if the last reading is at least "
      "period_s old; they are zero until the first period has passed.";
  static void fields(auto field) {
    field("period_s", &OnRead::period_s, "Age at which a reading is renewed.")
        .unit("s")
        .range(sim::positive_up_to(sim::kLongestSpan_s))
        .log_search(0.001, 10);
  }
};

/// The substitute for a stale value.
enum class WhenStale : std::uint8_t { hold, fail_open, fail_closed };

}  // namespace spillway::signals

template <>
struct spillway::sim::EnumNames<spillway::signals::WhenStale> {
  static constexpr std::array<std::string_view, 3> names{"hold", "fail_open", "fail_closed"};
};

namespace spillway::signals {

/// Every instance is scraped periodically; decisions see the last scrape that has arrived.
struct Scraped {
  double period_s = 0.05;
  double phase_s = 0;
  double delay_s = 0;
  double jitter = 0;
  double loss_probability = 0;
  std::optional<double> stale_after_s;
  WhenStale when_stale = WhenStale::hold;

  static constexpr std::string_view kind = "scraped", type_name = "Scraped";
  static constexpr std::string_view doc =
      "Every instance is scraped at phase_s, phase_s + period_s, …; a decision sees the last "
      "scrape that is at least delay_s old, and zeros before the first one.";
  static void fields(auto field) {
    field("period_s", &Scraped::period_s, "Time between two scrapes.")
        .unit("s")
        .range(sim::between(1e-4, sim::kLongestSpan_s))
        .log_search(0.001, 10);
    field("phase_s", &Scraped::phase_s, "Instant of the first scrape.")
        .unit("s")
        .range(sim::between(0, sim::kLongestSpan_s));
    field("delay_s", &Scraped::delay_s, "Time from a scrape until decisions see it.")
        .unit("s")
        .range(sim::between(0, 10));
    field("jitter", &Scraped::jitter,
          "Each scrape of each instance is late by a share of the period, drawn uniformly from [0, "
          "jitter).")
        .dimensionless()
        .range(sim::between(0, 1));
    field("loss_probability", &Scraped::loss_probability,
          "Probability that a scrape is lost, independently for each.")
        .dimensionless()
        .range(sim::between(0, 0.99));
    field("stale_after_s", &Scraped::stale_after_s,
          "Age from which a value is stale, as it is before the first scrape (llm-d: 0.2); unset: "
          "never.")
        .unit("s")
        .range(sim::positive_up_to(sim::kLongestSpan_s));
    field("when_stale", &Scraped::when_stale,
          "The substitute for a stale value. hold: the last value; fail_open: the value of an idle "
          "instance; fail_closed: the value of a full instance, which gets no requests while any "
          "other instance's values are fresh.");
  }
  bool draws() const { return jitter > 0 || loss_probability > 0; }
};

using Signals = std::variant<Live, OnRead, Scraped>;

}  // namespace spillway::signals

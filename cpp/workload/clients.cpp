#include "workload/clients.h"

#include <algorithm>

#include "sim/value.h"

namespace spillway::workload {

void Client::validate(const std::string& path, std::vector<sim::Violation>& out) const {
  if (requests_per_s && rate_fraction != 1) {
    out.push_back({sim::join_path(path, "rate_fraction"), sim::to_text(rate_fraction),
                   "must be 1, because requests_per_s is given"});
  }
  if (closed_loop() && (requests_per_s || rate_fraction != 1)) {
    const bool is_rate = requests_per_s.has_value();
    out.push_back({sim::join_path(path, is_rate ? "requests_per_s" : "rate_fraction"),
                   sim::to_text(requests_per_s.value_or(rate_fraction)),
                   "does not apply to closed_loop arrivals: their rate follows what is served"});
  }
  validate_profile(path, out);
  if (prefix_group.empty() != (prefix_tokens == 0)) {
    out.push_back({sim::join_path(path, "prefix_tokens"), std::to_string(prefix_tokens),
                   prefix_group.empty() ? "requires a prefix_group"
                                        : "must be > 0, because prefix_group is given"});
  }
}

void Client::validate_profile(const std::string& path, std::vector<sim::Violation>& out) const {
  const std::string place = sim::join_path(path, "rate_profile");
  if (rate_profile.empty()) {
    if (rate_period_s) {
      out.push_back({sim::join_path(path, "rate_period_s"), sim::to_text(*rate_period_s),
                     "requires a rate_profile"});
    }
    return;
  }
  if (closed_loop()) {
    out.push_back({place, std::to_string(rate_profile.size()) + " points",
                   "does not apply to closed_loop arrivals: their rate follows what is served"});
  }
  for (std::size_t i = 0; i < rate_profile.size(); ++i) {
    const std::string at = sim::join_path(sim::index_path(place, i), "at_s");
    const double at_s = rate_profile[i].at_s;
    if (i > 0 && at_s < rate_profile[i - 1].at_s) {
      out.push_back(
          {at, sim::to_text(at_s),
           "must be >= that of the point before (" + sim::to_text(rate_profile[i - 1].at_s) + ")"});
    }
    if (rate_period_s && at_s > *rate_period_s) {
      out.push_back({at, sim::to_text(at_s),
                     "must be <= rate_period_s (" + sim::to_text(*rate_period_s) + ")"});
    }
  }
  if (std::ranges::all_of(rate_profile, [](const RatePoint& point) { return point.factor == 0; })) {
    out.push_back({place, "every factor 0", "must have a point with factor > 0"});
  }
}

sim::Time Client::end(sim::Time workload_end) const {
  if (!duration_s) return workload_end;
  return std::min(workload_end, sim::from_seconds(start_s + *duration_s));
}

}  // namespace spillway::workload

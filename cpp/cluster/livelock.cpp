#include "cluster/livelock.h"

#include <algorithm>
#include <array>
#include <string_view>
#include <vector>

#include "sim/value.h"

namespace spillway::cluster {

namespace {

// One attempt takes about a dozen events, from its arrival to the client's last timer.
constexpr std::uint64_t kEventsPerAttempt = 20;
constexpr std::uint64_t kEventsAnyway = 1'000'000;

constexpr std::size_t kActorsNamed = 6;

constexpr std::array<std::string_view, 19> kPhaseNames{
    "step_end",     "first_token",     "permit_release",  "client_reaction", "controller_tick",
    "fleet_change", "telemetry",       "timeline_sample", "queue_drain",     "dispatch_attempt",
    "queue_expiry", "instance_expiry", "arrival",         "arrival",         "arrival",
    "admission",    "routing",         "ingress",         "step_start"};
static_assert(kPhaseNames.size() == static_cast<std::size_t>(sim::Phase::step_start) + 1);

}  // namespace

bool LivelockGuard::suspects(sim::Time now, std::uint64_t events, std::uint64_t present) {
  if (now != instant_) {
    instant_ = now;
    events_before_ = events;
    most_present_ = 0;
  }
  most_present_ = std::max(most_present_, present);
  return events - events_before_ > kEventsAnyway + kEventsPerAttempt * attempts_ * most_present_;
}

std::string LivelockTally::message(sim::Time now) const {
  std::vector<std::pair<std::string, std::int64_t>> rows;
  std::int64_t total = 0;
  for (const auto& [what, count] : counts_) {
    const std::string_view phase = kPhaseNames[static_cast<std::size_t>(what.first)];
    rows.emplace_back(std::string(phase) + " of " + what.second, count);
    total += count;
  }
  std::stable_sort(rows.begin(), rows.end(),
                   [](const auto& a, const auto& b) { return a.second > b.second; });
  std::string text = "the clock stands still at " + sim::to_text(sim::to_seconds(now)) +
                     " s: events follow each other at this instant without end. Of the last " +
                     std::to_string(total) + ", ";
  for (std::size_t i = 0; i < std::min(rows.size(), kActorsNamed); ++i) {
    if (i > 0) text += ", ";
    text += std::to_string(rows[i].second) + " are " + rows[i].first;
  }
  if (rows.size() > kActorsNamed) {
    text += ", and so on for " + std::to_string(rows.size() - kActorsNamed) + " more";
  }
  return text + ". Some span in this loop must be longer than 0: a service or a think time";
}

}  // namespace spillway::cluster

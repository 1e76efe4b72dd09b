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

constexpr int kEventsTallied = 1000;

constexpr std::array<std::string_view, 23> kPhaseNames{
    "step_end",        "transfer_end",     "first_token",  "permit_release",  "client_reaction",
    "settings_change", "controller_tick",  "fleet_change", "telemetry",       "timeline_sample",
    "queue_drain",     "dispatch_attempt", "queue_expiry", "instance_expiry", "arrival",
    "arrival",         "arrival",          "arrival",      "admission",       "routing",
    "ingress",         "leg_entry",        "step_start"};
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

void LivelockGuard::check(Context& context, const Clients& clients, sim::Time horizon,
                          std::int64_t present,
                          const std::function<void(const sim::Event&)>& handle) {
  const std::size_t others = num_engines(context.simulation) + clients.num_users();
  if (!suspects(context.now, context.events.popped(),
                static_cast<std::uint64_t>(present) + others)) {
    return;
  }
  LivelockTally tally;
  sim::Event event;
  for (int i = 0; i < kEventsTallied; ++i) {
    if (!context.events.pop(horizon, event)) return;
    const bool advances = event.time() > context.now;
    tally.add(event.phase(), actor_of(event, clients));
    handle(event);
    if (advances) return;
  }
  throw sim::LivelockError(tally.message(context.now));
}

std::string actor_of(const sim::Event& event, const Clients& clients) {
  const std::string number = std::to_string(event.subject());
  switch (event.phase()) {
    case sim::Phase::step_end:
    case sim::Phase::step_start:
      return "engine " + number;
    case sim::Phase::fleet_change:
      return "the fleet";
    case sim::Phase::controller_tick:
    case sim::Phase::queue_drain:
    case sim::Phase::dispatch_attempt:
    case sim::Phase::queue_expiry:
      return "gateway " + number;
    case sim::Phase::timeline_sample:
      return "the timeline";
    case sim::Phase::transfer_end:
      return "the link";
    case sim::Phase::telemetry:
    case sim::Phase::instance_expiry:
    case sim::Phase::ingress:
    case sim::Phase::leg_entry:
      return "instance " + std::to_string(event.tie());
    case sim::Phase::source_arrival:
      return "the source";
    case sim::Phase::outside_arrival:
      return "submission " + number;
    case sim::Phase::user_arrival:
      return clients.name_of_user(event.subject());
    default:
      return clients.name_of_client(sim::RequestId{event.subject()});
  }
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
  std::string text = "the clock has stopped at " + sim::to_text(sim::to_seconds(now)) +
                     " s: events follow each other at this instant without end. Of the last " +
                     std::to_string(total) + ", ";
  for (std::size_t i = 0; i < std::min(rows.size(), kActorsNamed); ++i) {
    if (i > 0) text += ", ";
    text += std::to_string(rows[i].second) + " are " + rows[i].first;
  }
  if (rows.size() > kActorsNamed) {
    text += ", and so on for " + std::to_string(rows.size() - kActorsNamed) + " more";
  }
  return text + ". Some duration in this loop must be > 0: a service time or a think time";
}

}  // namespace spillway::cluster

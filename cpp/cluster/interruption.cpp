#include "cluster/interruption.h"

#include <algorithm>

#include "sim/error.h"

namespace spillway::cluster {

namespace {

constexpr std::uint64_t kMostEvents = 1u << 14;  // between two questions

}  // namespace

// A question costs more than an event, but an event may also take milliseconds: that of a policy in
// Python, or of a large fleet.
void Interruption::ask_now(std::uint64_t events) {
  using namespace std::chrono_literals;
  const auto now = std::chrono::steady_clock::now();
  if (now - asked_ < 10ms) spacing_ = std::min(2 * spacing_, kMostEvents);
  if (now - asked_ > 40ms) spacing_ = std::max(spacing_ / 2, kEventsBetweenCalls);
  asked_ = now;
  next_ = events + spacing_;
  if (is_wanted_()) throw sim::Interrupted();
}

}  // namespace spillway::cluster

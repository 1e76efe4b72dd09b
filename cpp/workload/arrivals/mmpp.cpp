#include "workload/arrivals/mmpp.h"

#include <algorithm>
#include <cstddef>
#include <optional>

#include "workload/arrivals/arrivals.h"

namespace spillway::workload {

namespace {

class MmppProcess final : public ArrivalProcess {
 public:
  MmppProcess(const Mmpp& config, double rate_per_s) {
    double requests = 0;
    for (const MmppState& state : config.states) {
      requests += state.rate_factor * state.mean_s;
      cycle_s_ += state.mean_s;
    }
    const double scale = rate_per_s * cycle_s_ / requests;
    for (const MmppState& state : config.states) {
      states_.push_back({scale * state.rate_factor, state.mean_s});
    }
  }

  double gap_s(sim::Draws& draws) override {
    if (!state_) state_ = stationary(draws);
    double gap = 0;
    // The next event of the state is an arrival, or its end: the earlier of two exponential times.
    for (;;) {
      const State& now = states_[*state_];
      const double leave_per_s = 1 / now.mean_s;
      const double event_per_s = now.requests_per_s + leave_per_s;
      gap += draws.exponential() / event_per_s;
      if (draws.uniform() * event_per_s >= leave_per_s) return gap;
      state_ = (*state_ + 1) % states_.size();
    }
  }

 private:
  struct State {
    double requests_per_s;
    double mean_s;
  };

  std::size_t stationary(sim::Draws& draws) const {
    double left_s = draws.uniform() * cycle_s_;
    std::size_t i = 0;
    for (; i + 1 < states_.size() && left_s >= states_[i].mean_s; ++i) left_s -= states_[i].mean_s;
    return i;
  }

  std::vector<State> states_;
  double cycle_s_ = 0;  // mean time of one cycle
  std::optional<std::size_t> state_;
};

}  // namespace

void Mmpp::validate(const std::string& path, std::vector<sim::Violation>& out) const {
  if (states.size() < 2) {
    out.push_back({sim::join_path(path, "states"), std::to_string(states.size()) + " states",
                   "must be at least two"});
  } else if (std::ranges::all_of(states, [](const MmppState& s) { return s.rate_factor == 0; })) {
    out.push_back({sim::join_path(path, "states"), "every rate_factor 0",
                   "must have a state with rate_factor > 0"});
  }
}

std::unique_ptr<ArrivalProcess> make(const Mmpp& config, double rate_per_s) {
  return std::make_unique<MmppProcess>(config, rate_per_s);
}

}  // namespace spillway::workload

#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "signals/signal_source.h"
#include "sim/ids.h"
#include "sim/time.h"

namespace spillway::signals {

/// An instance that may fail, as the telemetry sees it: while it is silent, what it reported last
/// stays known, with the time at which that was measured.
class ReportedSource final : public SignalSource {
 public:
  /// `source` must outlive this.
  explicit ReportedSource(SignalSource& source) : source_(source) {
    if (source.num_ranks() == 1) return;
    for (std::size_t i = 0; i < source.num_ranks(); ++i) {
      ranks_.push_back(std::make_unique<ReportedSource>(source.rank(i)));
    }
  }

  /// From now on it is silent. To be called before its state changes by that.
  void fall_silent(sim::Time now) {
    if (is_silent_) return;
    last_ = source_.read(now);
    occupancy_ = source_.occupancy();
    is_silent_ = true;
    for (const auto& rank : ranks_) rank->fall_silent(now);
  }
  void report_again() {
    is_silent_ = false;
    for (const auto& rank : ranks_) rank->report_again();
  }
  bool is_silent() const { return is_silent_; }

  InstanceSignal read(sim::Time now) override { return is_silent_ ? last_ : source_.read(now); }
  Occupancy occupancy() const override { return is_silent_ ? occupancy_ : source_.occupancy(); }
  Capacity capacity() const override { return source_.capacity(); }
  /// Of what the instance really holds: what is cached is forgotten with the process.
  std::int64_t cached_blocks(sim::RequestId id, sim::Time now) override {
    return source_.cached_blocks(id, now);
  }
  std::size_t num_ranks() const override { return source_.num_ranks(); }
  SignalSource& rank(std::size_t i) override {
    return ranks_.empty() ? static_cast<SignalSource&>(*this) : *ranks_[i];
  }
  std::size_t next_rank() const override { return source_.next_rank(); }

 private:
  SignalSource& source_;
  std::vector<std::unique_ptr<ReportedSource>> ranks_;  // empty unless it has several
  bool is_silent_ = false;
  InstanceSignal last_;
  Occupancy occupancy_;
};

}  // namespace spillway::signals

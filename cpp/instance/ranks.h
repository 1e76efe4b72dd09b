#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "instance/instance.h"
#include "signals/signal_source.h"
#include "sim/ids.h"
#include "sim/time.h"
#include "workload/outcome.h"

namespace spillway::instance {

/// Data-parallel engines behind one entry. If the router does not choose among them, requests are
/// distributed like in vLLM's internal load balancing (`DPLBAsyncMPClient`), with current counts
/// that include each request from its routing on.
class Ranks final : public Instance {
 public:
  /// `lockstep`: the common step clock of the ranks; null: each has its own.
  explicit Ranks(std::unique_ptr<Engine> lockstep = nullptr) : lockstep_(std::move(lockstep)) {}

  void add(std::unique_ptr<Instance> rank);

  std::size_t next_rank() const override;
  void sent(std::size_t rank) override { ++inside_[rank]; }
  void left(std::size_t rank) override { --inside_[rank]; }
  sim::Time entry_delay(sim::RequestId id) const override;
  void enqueue(sim::RequestId id, std::size_t rank, sim::Time now) override;
  void cancel(sim::RequestId id, std::size_t rank, workload::Outcome outcome,
              sim::Time now) override;
  void close(sim::Time end) override;
  void crash(sim::Time now) override;
  void suspend(sim::Time now) override;
  void resume(sim::Time now) override;
  void set_slowness(double factor, sim::Time now) override;
  Loss lose_kv(bool cached_only, sim::Time now) override;

  signals::InstanceSignal read(sim::Time now) override;
  signals::Occupancy occupancy() const override;
  signals::Capacity capacity() const override;
  /// The maximum over the ranks.
  std::int64_t cached_blocks(sim::RequestId id, sim::Time now) override;
  void add_emitted(std::span<std::int64_t> by_group, sim::Time now) override;
  void note_emitted(sim::Time now) override;
  sim::Time next_token(sim::Time now) override;
  std::size_t num_ranks() const override { return ranks_.size(); }
  Instance& rank(std::size_t i) override { return *ranks_[i]; }
  Stepping stepping() const override { return ranks_.front()->stepping(); }
  const Counters& counters() const override { return counters_; }
  void check_memory() const override;

 private:
  std::int64_t load_of(std::size_t rank) const;

  std::unique_ptr<Engine> lockstep_;
  std::vector<std::unique_ptr<Instance>> ranks_;
  std::vector<std::int64_t> inside_;  // by rank: routed there and not left
  Counters counters_;
};

}  // namespace spillway::instance

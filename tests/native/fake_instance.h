#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "instance/instance.h"
#include "signals/signal_source.h"
#include "sim/ids.h"
#include "sim/time.h"

/// An instance with scripted metrics that ignores requests.
class FakeInstance final : public spillway::instance::Instance {
 public:
  spillway::signals::InstanceSignal reported;
  spillway::signals::Capacity limits{.max_num_seqs = 8,
                                     .max_num_batched_tokens = 1000,
                                     .num_kv_blocks = 100,
                                     .block_size_tokens = 10};
  std::int64_t emitted_tokens = 0;           ///< of the first group of requests
  std::vector<std::int32_t> emits_at_reads;  ///< by request; what `note_emitted` writes to `states`
  spillway::workload::RequestStates* states = nullptr;
  std::int64_t found_blocks = 0;  ///< of every prompt
  int reads = 0;

  spillway::signals::InstanceSignal read(spillway::sim::Time now) override {
    ++reads;
    spillway::signals::InstanceSignal seen = reported;
    seen.measured = now;
    return seen;
  }
  spillway::signals::Occupancy occupancy() const override {
    return {reported.waiting, reported.running};
  }
  spillway::signals::Capacity capacity() const override { return limits; }
  std::int64_t cached_blocks(spillway::sim::RequestId, spillway::sim::Time) override {
    return found_blocks;
  }
  void add_emitted(std::span<std::int64_t> by_group, spillway::sim::Time) override {
    by_group[0] += emitted_tokens;
  }
  void note_emitted(spillway::sim::Time) override {
    for (std::size_t i = 0; i < emits_at_reads.size(); ++i) states->emitted[i] = emits_at_reads[i];
  }
  spillway::sim::Time next_token(spillway::sim::Time) override { return spillway::sim::kForever; }

  spillway::sim::Time entry_delay(spillway::sim::RequestId) const override { return {}; }
  void enqueue(spillway::sim::RequestId, std::size_t, spillway::sim::Time) override {}
  void cancel(spillway::sim::RequestId, std::size_t, spillway::workload::Outcome,
              spillway::sim::Time) override {}
  void close(spillway::sim::Time) override {}
  spillway::instance::Stepping stepping() const override {
    return spillway::instance::Stepping::plain;
  }
  const spillway::instance::Counters& counters() const override { return counters_; }

 private:
  spillway::instance::Counters counters_;
};

/// A fleet of fake instances.
class FakeFleet {
 public:
  explicit FakeFleet(std::size_t size) {
    for (std::size_t i = 0; i < size; ++i) {
      auto fake = std::make_unique<FakeInstance>();
      fakes_.push_back(fake.get());
      instances_.push_back(std::move(fake));
    }
  }
  FakeInstance& operator[](std::size_t i) { return *fakes_[i]; }
  std::span<const std::unique_ptr<spillway::instance::Instance>> instances() const {
    return instances_;
  }
  std::vector<spillway::signals::SignalSource*> sources() const {
    return {fakes_.begin(), fakes_.end()};
  }

 private:
  std::vector<FakeInstance*> fakes_;
  std::vector<std::unique_ptr<spillway::instance::Instance>> instances_;
};

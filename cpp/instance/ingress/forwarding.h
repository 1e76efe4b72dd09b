#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>

#include "instance/instance.h"
#include "signals/signal_source.h"
#include "sim/ids.h"
#include "sim/time.h"

namespace spillway::instance {

/// The calls that an ingress forwards unchanged to its instance: reads, ranks, entry delay.
class Forwarding : public Instance {
 public:
  /// To be called before all other functions.
  void set_inner(std::unique_ptr<Instance> inner) { inner_ = std::move(inner); }

  std::size_t next_rank() const override { return inner_->next_rank(); }
  void sent(std::size_t rank) override { inner_->sent(rank); }
  void left(std::size_t rank) override { inner_->left(rank); }
  sim::Time entry_delay(sim::RequestId id) const override { return inner_->entry_delay(id); }
  signals::InstanceSignal read(sim::Time now) override { return inner_->read(now); }
  signals::Occupancy occupancy() const override { return inner_->occupancy(); }
  signals::Capacity capacity() const override { return inner_->capacity(); }
  std::int64_t cached_blocks(sim::RequestId id, sim::Time now) override {
    return inner_->cached_blocks(id, now);
  }
  void add_emitted(std::span<std::int64_t> by_group, sim::Time now) override {
    inner_->add_emitted(by_group, now);
  }
  void note_emitted(sim::Time now) override { inner_->note_emitted(now); }
  sim::Time next_token(sim::Time now) override { return inner_->next_token(now); }
  std::size_t num_ranks() const override { return inner_->num_ranks(); }
  Instance& rank(std::size_t i) override { return inner_->rank(i); }
  Stepping stepping() const override { return inner_->stepping(); }
  void check_memory() const override { inner_->check_memory(); }

 protected:
  Instance& inner() const { return *inner_; }

 private:
  std::unique_ptr<Instance> inner_;
};

}  // namespace spillway::instance

#pragma once

#include <algorithm>

#include "sim/time.h"

namespace spillway::gateway {

/// Tokens that refill continuously, up to a capacity with which they start.
class Bucket {
 public:
  Bucket(double capacity, double refill_per_s)
      : capacity_(capacity), refill_per_s_(refill_per_s), tokens_(capacity) {}

  /// From now on; tokens beyond the capacity are lost.
  void change(double capacity, double refill_per_s, sim::Time now) {
    refill(now);
    capacity_ = capacity;
    refill_per_s_ = refill_per_s;
    tokens_ = std::min(tokens_, capacity);
  }
  double capacity() const { return capacity_; }
  double refill_per_s() const { return refill_per_s_; }
  double tokens(sim::Time now) {
    refill(now);
    return tokens_;
  }
  void take(double tokens, sim::Time now) {
    refill(now);
    tokens_ -= tokens;
  }

 private:
  // In microseconds, multiplied before it is divided: the rounding of the published policy.
  void refill(sim::Time now) {
    if (now <= last_refill_) return;
    const double elapsed_us = static_cast<double>((now - last_refill_).ns) / 1000.0;
    tokens_ = std::min(capacity_, tokens_ + elapsed_us * refill_per_s_ / 1e6);
    last_refill_ = now;
  }

  double capacity_;
  double refill_per_s_;
  double tokens_;
  sim::Time last_refill_{0};
};

}  // namespace spillway::gateway

#pragma once

#include <span>

namespace spillway::gateway {

/// Contract of a usage limit: from which saturation of the fleet is each band closed?
///
/// `set_ceilings` is called at the beginning of every drain with waiting requests, and writes the
/// ceilings of the bands, the highest priority first. Without `follows_saturation`, it is called
/// once, before the run, with a saturation of 0.
class UsageLimitPolicy {
 public:
  virtual ~UsageLimitPolicy() = default;
  virtual bool follows_saturation() const { return false; }
  virtual void set_ceilings(double saturation, std::span<double> ceilings) = 0;
};

}  // namespace spillway::gateway

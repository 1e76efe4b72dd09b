#pragma once

#include <vector>

#include "sim/ids.h"

namespace spillway::gateway {

/// A policy's data for each request in the system. Ids are reused after requests have left: an
/// entry must be set at admission.
template <class T>
class PerRequest {
 public:
  T& operator[](sim::RequestId id) {
    if (id.index() >= entries_.size()) entries_.resize(id.index() + 1);
    return entries_[id.index()];
  }

 private:
  std::vector<T> entries_;
};

}  // namespace spillway::gateway

#pragma once

#include <cstddef>
#include <optional>
#include <utility>
#include <vector>

#include "sim/ids.h"

namespace spillway::cluster {

/// Which attempts are the two copies of a hedged request, while both may answer, and which of them
/// do not stand for it in the end.
class Rivals {
 public:
  /// The request has arrived, which may have the id of an earlier one.
  void arrived(sim::RequestId id) { at(id) = {}; }
  /// The client of `first` sends the copy `second`.
  void pair(sim::RequestId first, sim::RequestId second) {
    at(second) = {.rival = first, .is_second = true};
    at(first) = {.rival = second};
  }
  /// The other copy, if both may answer.
  std::optional<sim::RequestId> of(sim::RequestId id) const {
    return id.index() < copies_.size() ? copies_[id.index()].rival : std::nullopt;
  }
  bool is_second(sim::RequestId id) const { return copies_[id.index()].is_second; }
  /// The copy cannot answer any more, so the other one stands for the request: its id, which is
  /// returned. Unset: there is no such copy.
  std::optional<sim::RequestId> give_up(sim::RequestId id) {
    const std::optional<sim::RequestId> other = of(id);
    if (!other) return std::nullopt;
    copies_[id.index()].rival.reset();
    copies_[id.index()].is_out = true;
    copies_[other->index()].rival.reset();
    return other;
  }
  bool is_out(sim::RequestId id) const {
    return id.index() < copies_.size() && copies_[id.index()].is_out;
  }
  /// The instance to which the copy is not sent although the other one is no rival any more.
  std::optional<sim::InstanceId> avoided(sim::RequestId id) const {
    return id.index() < copies_.size() ? copies_[id.index()].avoided : std::nullopt;
  }
  void avoid(sim::RequestId id, sim::InstanceId instance) { at(id).avoided = instance; }
  /// Ids are below this.
  std::size_t size() const { return copies_.size(); }

 private:
  struct Copy {
    std::optional<sim::RequestId> rival;
    bool is_second = false;
    bool is_out = false;
    std::optional<sim::InstanceId> avoided;
  };

  Copy& at(sim::RequestId id) {
    if (copies_.size() <= id.index()) copies_.resize(id.index() + 1);
    return copies_[id.index()];
  }

  std::vector<Copy> copies_;  // by attempt
};

}  // namespace spillway::cluster

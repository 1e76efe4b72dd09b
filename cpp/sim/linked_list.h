#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "sim/flat_map.h"

namespace spillway::sim {

/// A doubly linked list in one piece of memory that never shrinks: the slots of erased elements are
/// reused, so nothing is allocated once the list has reached its largest size.
///
/// An element keeps its handle (≥ 0) from its creation until it is erased, also while it is outside
/// of the order. References to elements are valid until the next one is created.
template <class T>
class LinkedList {
 public:
  /// The index type of FlatMap.
  using Handle = std::int32_t;
  static constexpr Handle kNone = FlatMap::kNone;

  /// Number of elements in the order.
  std::size_t size() const { return size_; }
  bool empty() const { return size_ == 0; }

  T& operator[](Handle at) { return node(at).value; }
  const T& operator[](Handle at) const { return node(at).value; }
  /// The first, the last and the adjacent elements in the order; kNone: none.
  Handle front() const { return front_; }
  Handle back() const { return back_; }
  Handle next(Handle at) const { return node(at).next; }
  Handle previous(Handle at) const { return node(at).previous; }

  Handle push_back(const T& value) { return insert(kNone, value); }
  Handle push_front(const T& value) { return insert(front_, value); }
  /// Inserts a new element before another one; before kNone is at the end.
  Handle insert(Handle before, const T& value) {
    const Handle at = make(value);
    link(before, at);
    return at;
  }
  void erase(Handle at) {
    unlink(at);
    discard(at);
  }

  // ---- elements outside of the order -------------------------------------------------------

  /// Creates an element outside of the order.
  Handle make(const T& value) {
    if (unused_ == kNone) {
      nodes_.push_back({value, kNone, kNone});
      return static_cast<Handle>(nodes_.size() - 1);
    }
    const Handle at = unused_;
    unused_ = node(at).next;
    node(at) = {value, kNone, kNone};
    return at;
  }
  /// Erases an element outside of the order.
  void discard(Handle at) {
    node(at).next = unused_;
    unused_ = at;
  }
  /// Puts an element into the order, before another one; before kNone is at the end.
  void link(Handle before, Handle at) {
    const Handle last = before == kNone ? back_ : node(before).previous;
    node(at).previous = last;
    node(at).next = before;
    (last == kNone ? front_ : node(last).next) = at;
    (before == kNone ? back_ : node(before).previous) = at;
    ++size_;
  }
  void link_back(Handle at) { link(kNone, at); }
  /// Takes an element out of the order.
  void unlink(Handle at) {
    const Handle before = node(at).previous;
    const Handle after = node(at).next;
    (before == kNone ? front_ : node(before).next) = after;
    (after == kNone ? back_ : node(after).previous) = before;
    --size_;
  }

 private:
  struct Node {
    T value;
    Handle previous;
    Handle next;  // of an unused node: the next unused one
  };
  Node& node(Handle at) { return nodes_[static_cast<std::size_t>(at)]; }
  const Node& node(Handle at) const { return nodes_[static_cast<std::size_t>(at)]; }

  std::vector<Node> nodes_;
  Handle front_ = kNone;
  Handle back_ = kNone;
  Handle unused_ = kNone;
  std::size_t size_ = 0;
};

}  // namespace spillway::sim

#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "sim/flat_map.h"

namespace spillway::sim {

/// A doubly linked list in one piece of memory, which only ever grows: the slots of erased elements
/// are used again, so nothing is allocated once it has been as long as it gets.
///
/// An element has the same handle (≥ 0) from when it is made until it is erased, also while it
/// stands outside of the order. References to elements last until the next one is made.
template <class T>
class LinkedList {
 public:
  /// As FlatMap can hold it.
  using Handle = std::int32_t;
  static constexpr Handle kNone = FlatMap::kNone;

  /// Elements in the order.
  std::size_t size() const { return size_; }
  bool empty() const { return size_ == 0; }

  T& operator[](Handle at) { return node(at).value; }
  const T& operator[](Handle at) const { return node(at).value; }
  /// The first, the last and the neighbours of an element in the order; kNone where there is none.
  Handle front() const { return front_; }
  Handle back() const { return back_; }
  Handle next(Handle at) const { return node(at).next; }
  Handle previous(Handle at) const { return node(at).previous; }

  Handle push_back(const T& value) { return insert(kNone, value); }
  Handle push_front(const T& value) { return insert(front_, value); }
  /// Puts a new element before another; before kNone is at the end.
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

  /// Makes an element that stands outside of the order.
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
  /// Erases one.
  void discard(Handle at) {
    node(at).next = unused_;
    unused_ = at;
  }
  /// Puts one into the order, before another; before kNone is at the end.
  void link(Handle before, Handle at) {
    const Handle last = before == kNone ? back_ : node(before).previous;
    node(at).previous = last;
    node(at).next = before;
    (last == kNone ? front_ : node(last).next) = at;
    (before == kNone ? back_ : node(before).previous) = at;
    ++size_;
  }
  void link_back(Handle at) { link(kNone, at); }
  /// Takes one out of the order.
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
    Handle next;  // of an unused one: the next unused one
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

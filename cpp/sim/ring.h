#pragma once

#include <cstddef>
#include <vector>

namespace spillway::sim {

/// A double-ended queue in one piece of memory that never shrinks: nothing is allocated once it has
/// reached its largest size.
template <class T>
class Ring {
 public:
  std::size_t size() const { return size_; }
  bool empty() const { return size_ == 0; }
  /// Precondition of these functions: not empty (`i` < size()).
  const T& front() const { return items_[head_]; }
  const T& operator[](std::size_t i) const { return items_[slot(i)]; }
  T& operator[](std::size_t i) { return items_[slot(i)]; }
  void pop_front() {
    head_ = slot(1);
    --size_;
  }

  void push_back(const T& item) {
    reserve_one();
    items_[slot(size_++)] = item;
  }
  void push_front(const T& item) {
    reserve_one();
    head_ = slot(items_.size() - 1);
    items_[head_] = item;
    ++size_;
  }
  /// Removes the `i`-th item; the items before it move.
  void erase(std::size_t i) {
    for (; i > 0; --i) items_[slot(i)] = items_[slot(i - 1)];
    pop_front();
  }

 private:
  // The capacity is a power of two.
  std::size_t slot(std::size_t i) const { return (head_ + i) & (items_.size() - 1); }

  void reserve_one() {
    if (size_ < items_.size()) return;
    std::vector<T> larger(items_.empty() ? 8 : 2 * items_.size());
    for (std::size_t i = 0; i < size_; ++i) larger[i] = (*this)[i];
    items_.swap(larger);
    head_ = 0;
  }

  std::vector<T> items_;
  std::size_t head_ = 0;
  std::size_t size_ = 0;
};

}  // namespace spillway::sim

! apples.f90: a program's side of the application protocol in Fortran 2008: the calls of apples.h, which does the work.
!
!     call apples_begin(defaults="grid=100 iterations=200")
!     n = apples_integer("grid")
!     allocate (u(n, 0:apples_rows() + 1))        ! a row of the strip is u(:, j): the rows are the last index
!     do while (apples_iterate())
!        call apples_exchange(u)
!        ...                                      ! a sweep over u
!     end do
!     call apples_result(u(:, 1:apples_rows()))
!     call apples_end()
!
! Rows are counted as in the plan: apples_first_row() is the first of this rank, from 0 on.
module apples
   use, intrinsic :: iso_c_binding
   use, intrinsic :: iso_fortran_env, only: int32, int64, real32, real64
   implicit none
   private
   public :: apples_begin, apples_end, apples_fail, apples_iterate, apples_iteration
   public :: apples_integer, apples_number, apples_text, apples_rank, apples_size, apples_above, apples_below
   public :: apples_comm, apples_first_row, apples_rows, apples_layout, apples_host, apples_implementation
   public :: apples_output, apples_save, apples_exchange, apples_allreduce, apples_communicating, apples_computing
   public :: apples_residual, apples_result, apples_threads

   ! Takes the `halo` rows beyond the strip, on either side, from the neighbours, and sends them this rank's.
   interface apples_exchange
      module procedure exchange_real64, exchange_real32, exchange_int32, exchange_int64
   end interface
   ! Says what came out: this rank's rows, without halo and boundary.
   interface apples_result
      module procedure result_real64, result_real32, result_int32, result_int64
   end interface

   character(kind=c_char), allocatable, target :: words(:, :)
   type(c_ptr), allocatable, target :: arguments(:)

   interface
      subroutine c_begin(argc, argv, rows, columns, iterations, defaults) bind(c, name="apples_begin")
         import
         integer(c_int), value :: argc
         type(c_ptr), value :: argv
         character(kind=c_char), intent(in) :: rows(*), columns(*), iterations(*), defaults(*)
      end subroutine
      function c_integer(name) bind(c, name="apples_integer") result(value)
         import
         character(kind=c_char), intent(in) :: name(*)
         integer(c_long) :: value
      end function
      function c_number(name) bind(c, name="apples_number") result(value)
         import
         character(kind=c_char), intent(in) :: name(*)
         real(c_double) :: value
      end function
      function c_text(name) bind(c, name="apples_text") result(value)
         import
         character(kind=c_char), intent(in) :: name(*)
         type(c_ptr) :: value
      end function
      function c_layout(rank, first_row, rows) bind(c, name="apples_layout") result(host)
         import
         integer(c_int), value :: rank
         integer(c_long), intent(out) :: first_row, rows
         type(c_ptr) :: host
      end function
      function c_host() bind(c, name="apples_host") result(value)
         import
         type(c_ptr) :: value
      end function
      function c_implementation() bind(c, name="apples_implementation") result(value)
         import
         type(c_ptr) :: value
      end function
      function c_output() bind(c, name="apples_output") result(value)
         import
         type(c_ptr) :: value
      end function
      function c_save() bind(c, name="apples_save") result(value)
         import
         integer(c_int) :: value
      end function
      function c_iterate() bind(c, name="apples_iterate") result(value)
         import
         integer(c_int) :: value
      end function
      subroutine c_exchange(array, row_bytes, halo) bind(c, name="apples_exchange")
         import
         type(c_ptr), value :: array
         integer(c_size_t), value :: row_bytes
         integer(c_int), value :: halo
      end subroutine
      function c_allreduce(value, operation) bind(c, name="apples_allreduce") result(found)
         import
         real(c_double), value :: value
         character(kind=c_char), intent(in) :: operation(*)
         real(c_double) :: found
      end function
      subroutine c_result(first, rows, columns, stride, kind) bind(c, name="apples_result")
         import
         type(c_ptr), value :: first
         integer(c_long), value :: rows, columns, stride
         character(kind=c_char), intent(in) :: kind(*)
      end subroutine
      subroutine c_fail(message) bind(c, name="apples_fail")
         import
         character(kind=c_char), intent(in) :: message(*)
      end subroutine
      function c_length(text) bind(c, name="strlen") result(length)
         import
         type(c_ptr), value :: text
         integer(c_size_t) :: length
      end function

      ! What needs no other face.
      function apples_rank() bind(c, name="apples_rank") result(value)
         import
         integer(c_int) :: value
      end function
      function apples_size() bind(c, name="apples_size") result(value)
         import
         integer(c_int) :: value
      end function
      ! By how many threads this rank is to compute: 1, unless its implementation is by threads.
      function apples_threads() bind(c, name="apples_threads") result(value)
         import
         integer(c_int) :: value
      end function
      function apples_above() bind(c, name="apples_above") result(value)
         import
         integer(c_int) :: value
      end function
      function apples_below() bind(c, name="apples_below") result(value)
         import
         integer(c_int) :: value
      end function
      ! The communicator as MPI's Fortran bindings have it: mpi_f08's is type(MPI_Comm)(apples_comm()).
      function apples_comm() bind(c, name="apples_fortran_comm") result(value)
         import
         integer(c_int) :: value
      end function
      function apples_first_row() bind(c, name="apples_first_row") result(value)
         import
         integer(c_long) :: value
      end function
      function apples_rows() bind(c, name="apples_rows") result(value)
         import
         integer(c_long) :: value
      end function
      function apples_iteration() bind(c, name="apples_iteration") result(value)
         import
         integer(c_long) :: value
      end function
      subroutine apples_communicating() bind(c, name="apples_communicating")
      end subroutine
      subroutine apples_computing() bind(c, name="apples_computing")
      end subroutine
      subroutine apples_residual(residual) bind(c, name="apples_residual")
         import
         real(c_double), value :: residual
      end subroutine
      subroutine apples_end() bind(c, name="apples_end")
      end subroutine
   end interface

contains

   ! Takes up the task; all that is not given is as apples.h says.
   subroutine apples_begin(rows, columns, iterations, defaults)
      character(len=*), intent(in), optional :: rows, columns, iterations, defaults
      character(len=:), allocatable :: word
      integer :: count, longest, length, j, k
      count = command_argument_count()
      longest = 0
      do k = 0, count
         call get_command_argument(k, length=length)
         longest = max(longest, length)
      end do
      allocate (words(longest + 1, 0:count), arguments(0:count + 1))
      allocate (character(len=longest) :: word)
      do k = 0, count
         call get_command_argument(k, word, length)
         do j = 1, length
            words(j, k) = word(j:j)
         end do
         words(length + 1, k) = c_null_char
         arguments(k) = c_loc(words(1, k))
      end do
      arguments(count + 1) = c_null_ptr
      call c_begin(int(count + 1, c_int), c_loc(arguments), given(rows), given(columns), given(iterations), given(defaults))
   end subroutine

   function given(text) result(found)
      character(len=*), intent(in), optional :: text
      character(kind=c_char, len=:), allocatable :: found
      found = c_null_char
      if (present(text)) found = trim(text)//c_null_char
   end function

   ! The parameters, as the user has set them.
   function apples_integer(name) result(value)
      character(len=*), intent(in) :: name
      integer(c_long) :: value
      value = c_integer(given(name))
   end function

   function apples_number(name) result(value)
      character(len=*), intent(in) :: name
      real(c_double) :: value
      value = c_number(given(name))
   end function

   function apples_text(name) result(value)
      character(len=*), intent(in) :: name
      character(len=:), allocatable :: value
      value = text_at(c_text(given(name)))
   end function

   ! Host, first row and number of rows of any rank.
   subroutine apples_layout(rank, host, first_row, rows)
      integer, intent(in) :: rank
      character(len=:), allocatable, intent(out) :: host
      integer(c_long), intent(out) :: first_row, rows
      host = text_at(c_layout(int(rank, c_int), first_row, rows))
   end subroutine

   function apples_host() result(value)
      character(len=:), allocatable :: value
      value = text_at(c_host())
   end function

   ! The template's implementation to run on this host; empty: the only one.
   function apples_implementation() result(value)
      character(len=:), allocatable :: value
      value = text_at(c_implementation())
   end function

   ! A directory to write to; empty where there is none.
   function apples_output() result(value)
      character(len=:), allocatable :: value
      value = text_at(c_output())
   end function

   function apples_save() result(value)
      logical :: value
      value = c_save() /= 0
   end function

   ! Whether there is an iteration to do.
   function apples_iterate() result(value)
      logical :: value
      value = c_iterate() /= 0
   end function

   ! The "max", "min" or "sum" of a value over all ranks.
   function apples_allreduce(value, operation) result(found)
      real(c_double), intent(in) :: value
      character(len=*), intent(in) :: operation
      real(c_double) :: found
      found = c_allreduce(value, given(operation))
   end function

   ! Ends all ranks, for a reason of the program's own.
   subroutine apples_fail(message)
      character(len=*), intent(in) :: message
      call c_fail(given(message))
   end subroutine

   function text_at(place) result(text)
      type(c_ptr), intent(in) :: place
      character(len=:), allocatable :: text
      character(kind=c_char), pointer :: letters(:)
      integer :: k
      if (.not. c_associated(place)) then
         text = ""
         return
      end if
      call c_f_pointer(place, letters, [c_length(place)])
      allocate (character(len=size(letters)) :: text)
      do k = 1, size(letters)
         text(k:k) = letters(k)
      end do
   end function

   subroutine exchange(place, columns, rows, item_bytes, halo)
      type(c_ptr), intent(in) :: place
      integer(c_long), intent(in) :: columns, rows
      integer(c_size_t), intent(in) :: item_bytes
      integer, intent(in), optional :: halo
      character(len=120) :: message
      integer(c_int) :: beyond
      beyond = 1
      if (present(halo)) beyond = int(halo, c_int)
      if (rows /= apples_rows() + 2*beyond) then
         write (message, "(a, i0, a, i0, a, i0)") "apples_exchange: the array has ", rows, " rows, not ", &
            apples_rows(), " and twice a halo of ", beyond
         call apples_fail(trim(message))
      end if
      call c_exchange(place, columns*item_bytes, beyond)
   end subroutine

   subroutine exchange_real64(array, halo)
      real(real64), contiguous, intent(inout), target :: array(:, :)
      integer, intent(in), optional :: halo
      call exchange(c_loc(array), size(array, 1, c_long), size(array, 2, c_long), 8_c_size_t, halo)
   end subroutine

   subroutine exchange_real32(array, halo)
      real(real32), contiguous, intent(inout), target :: array(:, :)
      integer, intent(in), optional :: halo
      call exchange(c_loc(array), size(array, 1, c_long), size(array, 2, c_long), 4_c_size_t, halo)
   end subroutine

   subroutine exchange_int32(array, halo)
      integer(int32), contiguous, intent(inout), target :: array(:, :)
      integer, intent(in), optional :: halo
      call exchange(c_loc(array), size(array, 1, c_long), size(array, 2, c_long), 4_c_size_t, halo)
   end subroutine

   subroutine exchange_int64(array, halo)
      integer(int64), contiguous, intent(inout), target :: array(:, :)
      integer, intent(in), optional :: halo
      call exchange(c_loc(array), size(array, 1, c_long), size(array, 2, c_long), 8_c_size_t, halo)
   end subroutine

   subroutine result_real64(rows)
      real(real64), contiguous, intent(in), target :: rows(:, :)
      call c_result(c_loc(rows), size(rows, 2, c_long), size(rows, 1, c_long), size(rows, 1, c_long), "f8"//c_null_char)
   end subroutine

   subroutine result_real32(rows)
      real(real32), contiguous, intent(in), target :: rows(:, :)
      call c_result(c_loc(rows), size(rows, 2, c_long), size(rows, 1, c_long), size(rows, 1, c_long), "f4"//c_null_char)
   end subroutine

   subroutine result_int32(rows)
      integer(int32), contiguous, intent(in), target :: rows(:, :)
      call c_result(c_loc(rows), size(rows, 2, c_long), size(rows, 1, c_long), size(rows, 1, c_long), "i4"//c_null_char)
   end subroutine

   subroutine result_int64(rows)
      integer(int64), contiguous, intent(in), target :: rows(:, :)
      call c_result(c_loc(rows), size(rows, 2, c_long), size(rows, 1, c_long), size(rows, 1, c_long), "i8"//c_null_char)
   end subroutine

end module apples

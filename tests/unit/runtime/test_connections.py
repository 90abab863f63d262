"""Ending the connections of a group of workers, whatever still holds them."""

import socket

from trainwright.runtime.apart.connections import hang_up, open_sockets


def test_the_other_side_sees_the_end_while_this_one_is_still_held() -> None:
    before = open_sockets()
    near, far = socket.socketpair()
    with near, far:
        far.settimeout(5)
        hang_up({near.fileno(): open_sockets()[near.fileno()]})
        assert far.recv(1) == b""
        assert near.fileno() not in before


def test_a_number_that_now_names_another_socket_is_left_alone() -> None:
    near, far = socket.socketpair()
    with near, far:
        hang_up({near.fileno(): "socket:[0]"})
        near.send(b"x")
        assert far.recv(1) == b"x"


def test_one_that_listens_goes_on_listening() -> None:
    with socket.create_server(("localhost", 0)) as server:
        hang_up({server.fileno(): open_sockets()[server.fileno()]})
        with socket.create_connection(server.getsockname()[:2]):
            server.accept()[0].close()

def same(found, expected):
    assert found == expected

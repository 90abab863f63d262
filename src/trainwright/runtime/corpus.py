"""A text of a few thousand letters, to train on before there is a file of tokens."""

TEXT = """\
The wheelwright makes the wheel and the cartwright makes the cart. The shipwright makes the ship and the
playwright makes the play. The trainwright makes the train: the engine first, then the wagons, then the
order in which they go.

A train is a line of wagons that share one track. The engine pulls and the wagons follow. If one wagon is
heavy, the whole train is slow. If one wagon is late, the whole train is late. So the trainwright weighs
every wagon, and moves the load from the heavy ones to the light ones, until all of them weigh the same.

There are many ways to carry a load. One engine may pull it all, and take its time. Two engines may each pull
a copy of the same train on two tracks, and tell each other at every station what they have learned. Four
engines may share one heavy wagon, each with a quarter of it, and then they must speak at every mile. Eight
engines may stand in a row, and hand the load from one to the next, and then the first must wait for the last.

The trainwright asks four questions of every plan. Does it fit? A wagon has room for so much and no more. Is
it fast? The time of a trip is the time of its slowest part. What does it cost? Coal has a price, and so has
the track. What holds it back? It may be the engine, it may be the track, it may be the waiting.

Here is how the day goes. In the morning the wagons are filled. At noon the train leaves the station. In the
evening the train comes back, and what was learned on the way is written in the book. At night the wagons are
mended, each a little, by what the book says. In the morning the wagons are filled again.

One day goes like the other, but no day is the same. On the first day the driver knows nothing of the way. On
the second day the driver knows the first bend. On the tenth day the driver knows the hills, and on the
hundredth day the driver could go with closed eyes. This is called learning, and it takes many days.

What if a wagon breaks on the way? Then the train must not begin again at the first station. At every tenth
station the trainwright writes down where every wagon stands and what is in it, and puts the book in a safe
place. If a wagon breaks, the train goes back to the last page of the book, and from there it goes on, and
nobody who looks at the end of the trip can tell that a wagon broke. If there is no new wagon, the load is
divided among the wagons that are left, by the same book, for the book speaks of the load and not of wagons.

The rules of the yard are short. Weigh before you load. Load before you leave. Count the wagons when you
leave, and count them when you come back. Write in the book with ink, and close it before you put it away. A
page that was not finished is no page. Say what you measured and say how. If the track is free, go; if the
track is not free, wait; if you do not know, ask.

The engine pulls and the wagons follow. One wagon carries wood and one wagon carries stone. One wagon carries
corn and one wagon carries salt. One wagon carries letters, and nobody knows what is in them. The wood is for
the house, the stone is for the road, the corn is for the bread, the salt is for the fish. The letters are
for those who wait at the last station, and they wait with patience, for the train has always come.

When the last wagon is in and the last page is written, the trainwright goes home along the track, and counts
the sleepers, one, two, three, four, five, six, seven, eight, nine, ten, and begins again at one.
"""
